! Arrays of a program, for the module tandem, which has these names, too.
module tandem_arrays
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: real32, real64, int32, int64
  implicit none
  private
  public :: tandem_array, tandem_array_t

  integer(c_int32_t), parameter :: float32 = 1, float64 = 2, i32 = 3, i64 = 4  ! dtypes of tandem_c.h

  type, bind(c) :: tandem_array_t
    type(c_ptr) :: data = c_null_ptr
    integer(c_int32_t) :: dtype = 0, rank = 0
    integer(c_int64_t) :: dims(8) = 0, strides(8) = 0
  end type

  interface tandem_array
    module procedure &
      array_real32_1, array_real32_2, array_real32_3, array_real32_4, array_real32_5, &
      array_real64_1, array_real64_2, array_real64_3, array_real64_4, array_real64_5, &
      array_int32_1, array_int32_2, array_int32_3, array_int32_4, array_int32_5, &
      array_int64_1, array_int64_2, array_int64_3, array_int64_4, array_int64_5
  end interface

contains

  subroutine describe(a, dtype, extents, p)
    type(tandem_array_t), intent(out) :: a
    integer(c_int32_t), intent(in) :: dtype
    integer(int64), intent(in) :: extents(:)
    type(c_ptr), intent(in) :: p
    a%dtype = dtype
    a%rank = size(extents)
    a%dims(1:a%rank) = extents(a%rank:1:-1)
    a%strides(1:a%rank) = 0
    a%data = p
  end subroutine
  ! `next` is the element after the first one along dimension k.
  subroutine stride(a, k, next, bytes)
    type(tandem_array_t), intent(inout) :: a
    integer, intent(in) :: k, bytes
    type(c_ptr), intent(in) :: next
    a%strides(a%rank + 1 - k) = (transfer(next, 0_c_intptr_t) - transfer(a%data, 0_c_intptr_t)) / bytes
  end subroutine
  subroutine fill(a)  ! a dimension of one element has any stride but 0, which would mean packed
    type(tandem_array_t), intent(inout) :: a
    where (a%strides(1:a%rank) == 0) a%strides(1:a%rank) = 1
  end subroutine

  type(tandem_array_t) function array_real32_1(x) result(a)
    real(real32), intent(in), target :: x(:)
    call describe(a, float32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_real32_2(x) result(a)
    real(real32), intent(in), target :: x(:,:)
    call describe(a, float32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_real32_3(x) result(a)
    real(real32), intent(in), target :: x(:,:,:)
    call describe(a, float32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_real32_4(x) result(a)
    real(real32), intent(in), target :: x(:,:,:,:)
    call describe(a, float32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2,1)), storage_size(x)/8)
    if (size(x,4) > 1) call stride(a, 4, c_loc(x(1,1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_real32_5(x) result(a)
    real(real32), intent(in), target :: x(:,:,:,:,:)
    call describe(a, float32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1,1,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2,1,1)), storage_size(x)/8)
    if (size(x,4) > 1) call stride(a, 4, c_loc(x(1,1,1,2,1)), storage_size(x)/8)
    if (size(x,5) > 1) call stride(a, 5, c_loc(x(1,1,1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_real64_1(x) result(a)
    real(real64), intent(in), target :: x(:)
    call describe(a, float64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_real64_2(x) result(a)
    real(real64), intent(in), target :: x(:,:)
    call describe(a, float64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_real64_3(x) result(a)
    real(real64), intent(in), target :: x(:,:,:)
    call describe(a, float64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_real64_4(x) result(a)
    real(real64), intent(in), target :: x(:,:,:,:)
    call describe(a, float64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2,1)), storage_size(x)/8)
    if (size(x,4) > 1) call stride(a, 4, c_loc(x(1,1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_real64_5(x) result(a)
    real(real64), intent(in), target :: x(:,:,:,:,:)
    call describe(a, float64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1,1,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2,1,1)), storage_size(x)/8)
    if (size(x,4) > 1) call stride(a, 4, c_loc(x(1,1,1,2,1)), storage_size(x)/8)
    if (size(x,5) > 1) call stride(a, 5, c_loc(x(1,1,1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int32_1(x) result(a)
    integer(int32), intent(in), target :: x(:)
    call describe(a, i32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int32_2(x) result(a)
    integer(int32), intent(in), target :: x(:,:)
    call describe(a, i32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int32_3(x) result(a)
    integer(int32), intent(in), target :: x(:,:,:)
    call describe(a, i32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int32_4(x) result(a)
    integer(int32), intent(in), target :: x(:,:,:,:)
    call describe(a, i32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2,1)), storage_size(x)/8)
    if (size(x,4) > 1) call stride(a, 4, c_loc(x(1,1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int32_5(x) result(a)
    integer(int32), intent(in), target :: x(:,:,:,:,:)
    call describe(a, i32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1,1,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2,1,1)), storage_size(x)/8)
    if (size(x,4) > 1) call stride(a, 4, c_loc(x(1,1,1,2,1)), storage_size(x)/8)
    if (size(x,5) > 1) call stride(a, 5, c_loc(x(1,1,1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int64_1(x) result(a)
    integer(int64), intent(in), target :: x(:)
    call describe(a, i64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int64_2(x) result(a)
    integer(int64), intent(in), target :: x(:,:)
    call describe(a, i64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int64_3(x) result(a)
    integer(int64), intent(in), target :: x(:,:,:)
    call describe(a, i64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int64_4(x) result(a)
    integer(int64), intent(in), target :: x(:,:,:,:)
    call describe(a, i64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2,1)), storage_size(x)/8)
    if (size(x,4) > 1) call stride(a, 4, c_loc(x(1,1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int64_5(x) result(a)
    integer(int64), intent(in), target :: x(:,:,:,:,:)
    call describe(a, i64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1,1,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2,1,1)), storage_size(x)/8)
    if (size(x,4) > 1) call stride(a, 4, c_loc(x(1,1,1,2,1)), storage_size(x)/8)
    if (size(x,5) > 1) call stride(a, 5, c_loc(x(1,1,1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
end module
